"""What a row says beside its prompt. Gym imports this file alone."""

from pydantic import BaseModel, ConfigDict, Field


class TaskData(BaseModel):
    """One task. Everything else is read from its folder while it runs, where the agent does not see it."""

    model_config = ConfigDict(extra="allow")  # only of what is kept does Gym say that it is not declared

    task_id: str = Field(description="The name of the task's folder.", json_schema_extra={"consumed_by": ["seed"]})
